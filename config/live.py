"""What the live process serves: streams that say when to look again, on one loop."""

from tools.live.app import Live

application = Live()
