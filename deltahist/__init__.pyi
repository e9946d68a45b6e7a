__version__: str

from . import decode as decode, noise as noise, plots as plots, strategies as strategies
from .accounts.allocation import allocate_offline as allocate_offline, allocate_online as allocate_online
from .accounts.ledger import Ledger as Ledger
from .accounts.window import Account as Account, Window as Window
from .answers import answer as answer, answer_each as answer_each, covariance as covariance
from .budget import Budget as Budget
from .checks import check_strategy as check_strategy
from .combining import Combined as Combined
from .counting import count as count, count_file as count_file
from .errors import (
    BudgetExceeded as BudgetExceeded,
    DamagedFile as DamagedFile,
    DeltaHistWarning as DeltaHistWarning,
    InputError as InputError,
    OutsideBounds as OutsideBounds,
)
from .exports import export as export, synthetic as synthetic
from .kinds import (
    Quantile as Quantile,
    QuantileMechanism as QuantileMechanism,
    SortedMechanism as SortedMechanism,
    SortedRelease as SortedRelease,
    load as load,
)
from .laws import Guarantee as Guarantee
from .mechanisms import Mechanism as Mechanism
from .mechanisms.histogram import sensitivity as sensitivity
from .network.clients import Clients as Clients
from .network.diffusion import Diffusion as Diffusion
from .network.mechanism import (
    DiffusionMechanism as DiffusionMechanism,
    Network as Network,
    PrivacyLevels as PrivacyLevels,
)
from .network.rappor import Rappor as Rappor
from .personal.people import People as People
from .planning import Candidate as Candidate, advise as advise, expected_error as expected_error, plan as plan
from .plots import protection_curve as protection_curve
from .publishers import (
    publish as publish,
    publish_mechanism as publish_mechanism,
    publish_quantile as publish_quantile,
    publish_sorted as publish_sorted,
)
from .publishers.publication import refine as refine, tighten as tighten
from .publishers.withdrawal import withdraw as withdraw
from .releases import About as About, Measurements as Measurements, Release as Release, Series as Series
from .remote import connect as connect
from .space import workloads as workloads
from .space.domain import Domain as Domain
from .space.neighbourhood import Neighbourhood as Neighbourhood
from .space.workloads import Boxes as Boxes
from .statement import list_facts as list_facts, write_statement as write_statement
from .strategies import Strategy as Strategy, register as register
from .sweeping import Peer as Peer, sweep as sweep
