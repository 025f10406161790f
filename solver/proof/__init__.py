"""The proving half: ``search`` gives each lane's turn to a relaxation, or to another part."""
