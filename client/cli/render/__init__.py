"""How messages, instants and errors look to a person, and to a program."""
