"""The proving half: ``search`` gives each lane's turn to a relaxation, a short run or a stretch."""
