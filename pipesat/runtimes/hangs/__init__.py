"""Whether an order can hang: its sends and receives, and how a communicator runs them."""
