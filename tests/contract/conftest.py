"""Settings for the tests that talk to services."""

from __future__ import annotations

import botocore.session

# A session reads its services' models from disk: 0.3 s. They are the same for all sessions.
_models = botocore.session.create_loader()
botocore.session.create_loader = lambda *_: _models
