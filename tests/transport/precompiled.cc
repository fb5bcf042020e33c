#include "hawser/tests/transport/testing/world.h"
