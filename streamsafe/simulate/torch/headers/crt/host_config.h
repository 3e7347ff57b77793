// Which host compilers nvcc works with: of no concern where nvcc is not used.
#pragma once
