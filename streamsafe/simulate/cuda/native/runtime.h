// What a compiled kernel and the runtime that runs its threads know of each other.
#pragma once

#include <cstddef>
#include <cstdint>

struct uint3 {
  unsigned int x, y, z;
};

extern "C" {
// Of the thread that runs now.
extern uint3 streamsafe_thread, streamsafe_block, streamsafe_block_dim, streamsafe_grid_dim;

enum streamsafe_vote { STREAMSAFE_COUNT, STREAMSAFE_AND, STREAMSAFE_OR };

// All threads of the block wait here; the number of those whose predicate holds, or whether all or any holds.
int streamsafe_barrier(int predicate, int vote);
// The lanes of the mask wait here.
void streamsafe_warp_barrier(unsigned int mask);
// Gives each lane of the mask a value and returns the one of the lane `from`.
void streamsafe_exchange(unsigned int mask, void* value, std::size_t size, int from);
// The lanes of the mask whose predicate holds.
unsigned int streamsafe_ballot(unsigned int mask, int predicate);
// A lock was not free: another thread may have to run first.
void streamsafe_yield();
// The shared memory whose size the launch gives.
extern char streamsafe_shared[];
// Stops the kernel: an error of the program, or what threads that run one after the other cannot do.
[[noreturn]] void streamsafe_fail(const char* reason);
[[noreturn]] void streamsafe_give_up(const char* reason);

enum streamsafe_end { STREAMSAFE_DONE, STREAMSAFE_FAILED, STREAMSAFE_GAVE_UP };

// Runs a kernel and says how it ended, with the reason in `message`.
int streamsafe_launch(void (*kernel)(void**), void** arguments, const unsigned int* shape, std::size_t shared,
                      char* message, std::size_t length);
}
