"""The test on AWS, `make aws-test`: a program that spends money, and no tier of pytest.

Belongs here: its sizes, its estimate, its deadline and its clean-up.
Does not: tests that need no AWS account; those of this program are in tests/unit/aws and
tests/contract/deploy.
"""
