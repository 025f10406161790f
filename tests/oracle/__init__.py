"""One oracle: what a document allows, by the contract's words, and pipesat held against it."""
