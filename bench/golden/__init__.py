"""What the product does, frozen."""
