"""Why a job or a node is as it is: facts from the head, and pure answers made of them."""
