// Runs the threads of a kernel, block after block, each thread up to its end or to the barrier at which it waits.
//
// Threads share a stack for as long as none has to wait: a kernel without barriers is a loop. A thread that waits keeps
// its stack, and the next ones get another.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime.h"

namespace {
constexpr std::size_t SHARED = 256 << 10;
}

uint3 streamsafe_thread, streamsafe_block, streamsafe_block_dim, streamsafe_grid_dim;
alignas(128) char streamsafe_shared[SHARED];

namespace {

constexpr std::size_t STACK = 256 << 10, GUARD = 4096, LARGEST = 32;
constexpr int WARP = 32;

enum State : char { FRESH, READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
  State state = FRESH;
  unsigned int mask = 0;
  int predicate = 0;
  int worker = -1;
  char value[LARGEST];
};

struct Worker {
  char* stack;
  ucontext_t start;
  jmp_buf at;
  bool begun;
};

std::vector<Thread> threads;
std::vector<Worker*> workers;
std::vector<int> idle;
jmp_buf scheduler;
ucontext_t scheduler_context;
sigjmp_buf stopped;
char why[512];
void (*kernel_)(void**);
void** arguments_;
unsigned int count, fresh, current, finished, yields;
int current_worker, votes[3];
volatile sig_atomic_t running = 0;
pthread_t runner;

[[noreturn]] void stop(int end, const char* reason) {
  std::snprintf(why, sizeof why, "%s", reason);
  siglongjmp(stopped, end);
}

void place(unsigned int index) {
  current = index;
  if (index < streamsafe_block_dim.x) {
    streamsafe_thread = {index, 0, 0};
    return;
  }
  streamsafe_thread.x = index % streamsafe_block_dim.x;
  streamsafe_thread.y = index / streamsafe_block_dim.x % streamsafe_block_dim.y;
  streamsafe_thread.z = index / streamsafe_block_dim.x / streamsafe_block_dim.y;
}

// The life of one stack: fresh threads, as long as there are any.
void work() {
  while (fresh < count) {
    place(fresh++);
    threads[current].worker = current_worker;
    kernel_(arguments_);
    threads[current].state = DONE;
    finished++;
    yields = 0;
  }
  idle.push_back(current_worker);
  _longjmp(scheduler, 1);
}

Worker* make_worker() {
  char* stack = static_cast<char*>(
      mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stack == MAP_FAILED) streamsafe_give_up("there is no memory for the stacks of its threads");
  mprotect(stack, GUARD, PROT_NONE);
  return new Worker{stack, {}, {}, false};
}

void resume(int number) {
  current_worker = number;
  Worker* worker = workers[number];
  if (_setjmp(scheduler)) return;
  if (worker->begun) _longjmp(worker->at, 1);
  worker->begun = true;
  getcontext(&worker->start);
  worker->start.uc_stack.ss_sp = worker->stack;
  worker->start.uc_stack.ss_size = STACK;
  worker->start.uc_link = nullptr;
  makecontext(&worker->start, work, 0);
  setcontext(&worker->start);
}

void wait(State state) {
  unsigned int self = current;
  threads[self].state = state;
  Worker* worker = workers[current_worker];
  if (!_setjmp(worker->at)) _longjmp(scheduler, 1);
  place(self);
}

void start_fresh() {
  if (idle.empty()) {
    workers.push_back(make_worker());
    idle.push_back(static_cast<int>(workers.size()) - 1);
  }
  int number = idle.back();
  idle.pop_back();
  workers[number]->begun = false;
  resume(number);
}

bool release_warps() {
  bool any = false;
  for (unsigned int first = 0; first < count; first += WARP) {
    unsigned int last = first + WARP < count ? first + WARP : count;
    for (unsigned int i = first; i < last; i++) {
      if (threads[i].state != AT_WARP) continue;
      unsigned int mask = threads[i].mask;
      bool complete = true;
      for (unsigned int j = first; j < last; j++)
        if ((mask >> (j - first) & 1) && threads[j].state != DONE &&
            !(threads[j].state == AT_WARP && threads[j].mask == mask))
          complete = false;
      if (!complete) continue;
      for (unsigned int j = first; j < last; j++)
        if (threads[j].state == AT_WARP && threads[j].mask == mask) threads[j].state = READY;
      any = true;
    }
  }
  return any;
}

bool release_block() {
  int total = 0, live = 0;
  for (Thread& each : threads) {
    if (each.state == DONE) continue;
    if (each.state != AT_BARRIER) return false;
    live++;
    total += each.predicate;
  }
  votes[STREAMSAFE_COUNT] = total;
  votes[STREAMSAFE_AND] = total == live;
  votes[STREAMSAFE_OR] = total > 0;
  for (Thread& each : threads)
    if (each.state == AT_BARRIER) each.state = READY;
  return true;
}

void run_block() {
  fresh = finished = yields = 0;
  for (Thread& each : threads) each.state = FRESH;
  while (fresh < count) start_fresh();
  while (finished < count) {
    bool moved = false;
    for (unsigned int i = 0; i < count; i++)
      if (threads[i].state == READY) {
        moved = true;
        resume(threads[i].worker);
      }
    if (moved) continue;
    yields = 0;
    if (!release_warps() && !release_block())
      streamsafe_give_up("its threads wait for one another at barriers that not all of them reach");
  }
}

void on_signal(int number, siginfo_t* info, void*) {
  if (!running || !pthread_equal(pthread_self(), runner)) {
    signal(number, SIG_DFL);
    return;
  }
  if (number == SIGFPE) stop(STREAMSAFE_GAVE_UP, "it divides an integer by zero");
  std::snprintf(why, sizeof why, "it accesses the address %p, where the device has no memory", info->si_addr);
  siglongjmp(stopped, STREAMSAFE_FAILED);
}

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};

}  // namespace

extern "C" {

int streamsafe_barrier(int predicate, int vote) {
  threads[current].predicate = predicate != 0;
  wait(AT_BARRIER);
  return votes[vote];
}

void streamsafe_warp_barrier(unsigned int mask) {
  threads[current].mask = mask;
  wait(AT_WARP);
}

void streamsafe_exchange(unsigned int mask, void* value, std::size_t size, int from) {
  if (size > LARGEST) streamsafe_give_up("it exchanges values of more than 32 bytes in a warp");
  unsigned int first = current / WARP * WARP;
  std::memcpy(threads[current].value, value, size);
  streamsafe_warp_barrier(mask);
  unsigned int source = first + static_cast<unsigned int>(from);
  if (from >= 0 && from < WARP && source < count) std::memcpy(value, threads[source].value, size);
  streamsafe_warp_barrier(mask);
}

unsigned int streamsafe_ballot(unsigned int mask, int predicate) {
  unsigned int first = current / WARP * WARP, found = 0;
  threads[current].predicate = predicate != 0;
  streamsafe_warp_barrier(mask);
  for (unsigned int lane = 0; lane < WARP && first + lane < count; lane++)
    if ((mask >> lane & 1) && threads[first + lane].state != DONE && threads[first + lane].predicate)
      found |= 1u << lane;
  streamsafe_warp_barrier(mask);
  return found;
}

void streamsafe_yield() {
  // each has had its turn many times, and none ended or came to a barrier
  if (++yields > 100 * count) streamsafe_give_up("a thread waits for another block, and blocks run one after the other");
  wait(READY);
}

void streamsafe_fail(const char* reason) { stop(STREAMSAFE_FAILED, reason); }

void streamsafe_give_up(const char* reason) { stop(STREAMSAFE_GAVE_UP, reason); }

int streamsafe_launch(void (*kernel)(void**), void** arguments, const unsigned int* shape, std::size_t shared,
                      char* message, std::size_t length) {
  static char* alternate = static_cast<char*>(std::malloc(64 << 10));
  kernel_ = kernel;
  arguments_ = arguments;
  streamsafe_grid_dim = {shape[0], shape[1], shape[2]};
  streamsafe_block_dim = {shape[3], shape[4], shape[5]};
  count = shape[3] * shape[4] * shape[5];
  threads.assign(count, Thread());
  // A stack that a thread has run over leaves no room for the handler.
  stack_t own = {alternate, 0, 64 << 10}, before_stack;
  sigaltstack(&own, &before_stack);
  struct sigaction action = {}, before[3];
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &action, &before[i]);
  runner = pthread_self();
  running = 1;
  int end = sigsetjmp(stopped, 1);
  if (end != STREAMSAFE_DONE) {
    std::snprintf(message, length, "%s", why);
    idle.clear();
    for (int i = 0; i < static_cast<int>(workers.size()); i++) idle.push_back(i);
  } else {
    if (shared > SHARED) streamsafe_give_up("its block has more than 256 KiB of shared memory");
    for (unsigned int z = 0; z < shape[2]; z++)
      for (unsigned int y = 0; y < shape[1]; y++)
        for (unsigned int x = 0; x < shape[0]; x++) {
          streamsafe_block = {x, y, z};
          run_block();
        }
  }
  running = 0;
  for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &before[i], nullptr);
  sigaltstack(&before_stack, nullptr);
  std::fflush(stdout);
  return end;
}
}
