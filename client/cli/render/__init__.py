"""How messages, instants and errors look to a person, and to a program.

Others may use:

* bars: what comes, drawn.
* clean: the one way by which text is printed.
* terminal: the console of pages that are laid out.
* output: lists and messages in each format.
* formats: single values.
* columns: which columns a list has.
* bars: figures as bars.
* progress: how far something long is.
* describe: all fields of one message.
"""
