__version__: str

from . import (
    accounts as accounts,
    decode as decode,
    errors as errors,
    kinds as kinds,
    network as network,
    noise as noise,
    personal as personal,
    plots as plots,
    publishers as publishers,
    strategies as strategies,
)
from .accounts.ledger import Ledger as Ledger
from .answers import answer as answer
from .budget import Budget as Budget
from .checks import check_strategy as check_strategy
from .counting import count as count, count_file as count_file
from .errors import BudgetExceeded as BudgetExceeded, DamagedFile as DamagedFile, InputError as InputError
from .exports import export as export, synthetic as synthetic
from .kinds import load as load
from .mechanisms import Mechanism as Mechanism
from .mechanisms.histogram import sensitivity as sensitivity
from .planning import expected_error as expected_error, plan as plan
from .publishers import publish as publish
from .publishers.publication import refine as refine, tighten as tighten
from .publishers.withdrawal import withdraw as withdraw
from .releases import About as About, Release as Release, Series as Series
from .releases.series import Difference as Difference
from .remote import connect as connect
from .space import workloads as workloads
from .space.domain import Domain as Domain
from .space.neighbourhood import Neighbourhood as Neighbourhood
from .statement import write_statement as write_statement
from .strategies import Strategy as Strategy, register as register
