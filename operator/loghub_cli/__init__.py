"""The command line ``loghub``: projects, logstores, shards, logs and consumer groups of any log service, and
groups on this machine.

`main` finds the module of a command, and one module has the commands of one noun: their arguments and nothing
else. The work is in modules without arguments (`connection`, `log_lines`, `followed_file`, `logstore_tail`,
`log_writer`, `group_lag`), and `output` is what users see of values.
"""
