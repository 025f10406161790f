"""What a schedule's value assumes and a real run may not grant: docs/compare.md."""
