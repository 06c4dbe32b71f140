"""What a person says of jobs: options, filters, files.

Others may use:

* job_options: the options that say what a job is.
* spec: a job of what the options say.
* filters: filters of lists, from options.
* documents: what stands in files.
* flat: jobs in the words of options.
* specfile: files with one job or many.
* modules: an object of a Python module, by its name.
* schema: what may stand in a file, for editors.
"""
