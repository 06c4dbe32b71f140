"""What a program uses to talk to a raftsched cluster."""
