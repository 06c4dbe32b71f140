"""When a job happens. Nothing here knows of a run.

Others may use:

* compiler: schedules and timing become a plan, or a list of all that is wrong with them.
* plan: a compiled plan, and the questions the rules ask of it.
* calendar_days: the days that a calendar leaves out.
* zones: time zones, from the packaged data.
* describe: schedules in English.
* preview: the next times, with the reasons for odd ones.
"""
