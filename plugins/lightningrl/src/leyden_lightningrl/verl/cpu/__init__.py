"""What verl needs to train on a machine without an accelerator, through verl's own extension points."""
