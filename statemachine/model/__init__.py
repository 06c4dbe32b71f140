"""What is stored, and how a decision sees it.

Others may use:

* keys: the tables and their keys.
* phases: where a run stands, and where it may go from there.
* record: what lies in the tables.
* specs: what jobs that are alike have in common.
* former_specs: what a run does whose job was changed.
* entities: a job and a run, as rules hand them to each other.
* view: the state as a decision sees it.
* layer: a state with writes over it that are not stored yet.
* request: what the leader asks of the rules beside the messages of the API.
* workers: workers as the leader knows them.
* timers: the timers in the state.
* concurrency_key: the key by which runs are limited together.
* carried: what a run carries for others.
* policies: what the policies of a job say, with their defaults.
* validate: what a user may write.
* hiding: fields that may hold secrets.
* answers: from records to messages of the API.
* difference: what the self-check finds.
* graph_memory: what was found in the graph of jobs, while that stays as it is.
* idempotency_by_age: which answered request id goes first.
"""
