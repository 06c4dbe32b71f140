"""A job from options, and jobs from files.

Others may use:

* spec: the options that say what a job is.
* specfile: files with one job or many.
"""
