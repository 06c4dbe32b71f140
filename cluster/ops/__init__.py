"""What an operator meets: settings, folder, addresses, TLS, log, figures, start and stop.

Others may use:

* config: settings from file, environment and flags.
* exits: why a node does not start or did not go on, as an exit code.
* lifecycle: what starts when, and what ends when.
* recovery: a new cluster out of what is left of an old one.
* tls: certificates and keys of a node's listeners.
"""
