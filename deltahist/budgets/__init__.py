"""What has been spent, and what may be: accounts, windows over time, how a window is shared out. Private."""
