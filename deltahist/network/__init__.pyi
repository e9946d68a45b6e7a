from .clients import Clients as Clients
from .diffusion import Diffusion as Diffusion
from .mechanism import DiffusionMechanism as DiffusionMechanism, Network as Network, PrivacyLevels as PrivacyLevels
from .rappor import Rappor as Rappor
