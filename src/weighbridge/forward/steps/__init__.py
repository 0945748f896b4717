"""One step of a forward pass: where its error lies, and the step itself as a script."""
