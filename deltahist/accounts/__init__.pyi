from .allocation import allocate_offline as allocate_offline, allocate_online as allocate_online
from .ledger import Ledger as Ledger
from .window import Account as Account, Window as Window
