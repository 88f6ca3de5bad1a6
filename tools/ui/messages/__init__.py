"""Messages that were sent, channels they are sent to, and a person's inbox."""
