"""Namespaces, and what belongs to one as a whole.

Others may use:

* namespaces: namespaces and their settings.
* queues: queues and their limits.
* quota: how many runs of a namespace may be under way.
* calendars: calendars that jobs share.
* idempotency: answers to request ids.
* audit_log: who changed what.
* access: access tokens.
* providers: who vouches for callers beside them.
* target_secrets: secrets for the targets of jobs, encrypted.
* own_alerts: the alerts a cluster has from the start.
"""
