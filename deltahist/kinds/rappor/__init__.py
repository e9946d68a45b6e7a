"""Reports of users' texts as noisy bits (RAPPOR): settings, channels, decoding; all but the noise."""

from deltahist.kinds.rappor.channels import Channel, Threshold
from deltahist.kinds.rappor.mechanism import Rappor, Reports

__all__ = ["Channel", "Rappor", "Reports", "Threshold"]
