"""Jobs that wait for others.

A run of a job that others depend on begins a wave and lends it its id and scheduled time. Steps
look at their condition when an upstream run ends: fire, wait, or can never run, and then so is what
depends on them alone. A job fires at most once in a wave. A step that waits longer than its
`stuck_after` is reported, and still fires if what it waits for comes. A wave is kept as long as
runs are, as a failure if one of its runs failed; one in which nothing is under way and nothing lies
ahead but stuck steps goes as a failure does.

A wave goes on in bounded steps, however long or wide it is. An end notices up to a hundred jobs in
its own change; for the others the state keeps one record for each job that is over (`NoticeRecord`,
with a cursor), and the wave's timer goes on with it. Nothing calls itself: a run that ends because
another begins is an effect that is carried out afterwards. A wave's steps are found by their key,
so its own record stays small. Looking for stuck steps and forgetting a wave go in steps as well.

A root that is made anew begins another round: steps of the earlier one count for nothing, and go
with the wave. A run that failed and is requeued opens its wave again: its next end takes the place
of the one before, and those that hear of it decide anew, save those that ran already. So steps that
could not run fire.

A job that gets another upstream may wait in waves for what was taken out, or for what is not in
them. The newest 10,000 waves of its namespace are looked at again, in steps.

At most 30,000 jobs wait for one, and one for 10,000 others; `DependsRecord` counts them, so a new
job asks without a walk. The depth is what was known when a job got its upstream: whoever deepens a
job in the middle may go beyond. Only an update that adds an upstream to a job that others wait for
can close a circle, and only that walks, down and then up, at most some 2,000 jobs either way.

A wave that begins in the middle comes to what its first job leads to, and waits for nothing else.
Up to 1,000 jobs and 4,000 links are looked through in one go, and remembered while the graph stays.
Where more follow, the wave makes a survey in bounded steps, which marks them in the state, and
what needs to know waits until that is complete. So does a step of any wave whose job was changed.

To readers a wave has failed when a failure was nobody's business, or kept a step from running. A
handler of errors that had nothing to do is no such step, nor what hangs on it alone.

Others may use:

* graph: which job waits for which.
* survey: which jobs a wave may come to.
* wave: a wave, as the rules hand it on.
* waves: waves of runs through jobs that depend on each other.
"""
