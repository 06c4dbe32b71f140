"""What an operator meets: settings, folder, addresses, TLS, log, figures, start and stop.

Others may use:

* config: the settings of a node.
* config_checks: what is wrong with them.
* config_load: reads them from file, environment and flags.
* config_text: the file that says them.
* exits: why a node does not start or did not go on, as an exit code.
* lifecycle: what starts when, and what ends when.
* recovery: a new cluster out of what is left of an old one.
* tls: certificates and keys of a node's listeners.
"""
