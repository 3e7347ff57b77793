// The core as a library of its own.
#include "abi.hpp"
