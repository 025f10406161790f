"""What every package needs: errors, arguments, claims, strict reading, safe writing."""
