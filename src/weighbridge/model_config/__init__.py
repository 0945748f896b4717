"""What a checkpoint says of its model: configuration, tokenizer, sidecar files."""
