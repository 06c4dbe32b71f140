"""The rules of the scheduler: what is due, who may run it, what happens when it fails."""
