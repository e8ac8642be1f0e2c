"""Account budgets as people see them: the head's figures, plan and overrides.

Figures and steps are made by `slurmplugins.budgets` on the head. This room asks the head for them,
and prints them.
"""
