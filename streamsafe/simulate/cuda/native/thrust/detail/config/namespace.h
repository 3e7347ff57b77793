// CuPy's complex numbers take their namespace from Thrust; of Thrust itself nothing is here.
#pragma once

#define THRUST_NAMESPACE_BEGIN namespace thrust {
#define THRUST_NAMESPACE_END }
