"""Every stream, event, copy, allocator, graph and interop row of the semantics that can be said as a stream program.

A row's id is that of its proof on hardware. Calls are spelled as what they order: a blocking copy is the copy and a
stream synchronize, a handshake is a record and a wait. Rows that say that nothing is ordered expect a verdict; each
stands beside a twin that is silent.
"""

from __future__ import annotations

import re

import pytest

from tests.order.language import check

TABLE = """
# -- streams and events
TS-01   | N: write x; A: read x                                                  | RAW
TS-01   | A: write x; N: read x                                                  | RAW
TS-02   | A: write x; A: read x; A: write x                                      |
TS-02   | A: copy x h; host: read h                                              | host-reads
TS-03   | N: write x; A: add y x                                                 | RAW
TS-03   | N: write x; A: wait_stream N; A: add y x                               |
TS-04   | A: write x; N: copy x y                                                | RAW
TS-04   | A: write x; N: wait_stream A; N: copy x y                              |
TS-05   | A: write x; B: read x                                                  | RAW
TS-05   | A: read x; B: write x                                                  | WAR
TS-05   | A: write x; B: write x                                                 | WAW
TS-05   | A: read x; B: read x                                                   |
TS-06   | A: write x; B: wait_stream A; B: read x                                |
TS-06   | A: write x; A: record e; B: wait e; B: read x                          |
TS-06b  | A: copy x h; B: wait_stream A; host: read h                            | host-reads
TS-06b  | B: read x; B: wait_stream A; A: write x                                | WAR!
TS-07   | A: write x; B: wait_stream A; B: read x; A: write x                    | WAR
TS-07   | A: write x; B: wait_stream A; B: read x; A: wait_stream B; A: write x  |
TS-08   | B: wait_stream A; A: write x; B: read x                                | RAW
TS-08   | A: write x; B: wait_stream A; A: write x; B: read x                    | RAW
TS-09   | A: write x; A: record e; B: wait e; B: copy x y                        |
TS-09   | A: write x; A: record e; B: wait e; B: read x; A: write x              | WAR
TS-09b  | A: copy x h; A: record e; B: wait e; host: read h                      | host-reads
TS-10   | A: record e; A: write x; B: wait e; B: read x                          | RAW!
TS-10   | A: write y; A: record e; A: write x; B: wait e; B: read y; B: read x   | RAW!
TS-10   | A: write y; A: record e; A: write x; B: wait e; B: read y              |
TS-11   | A: write x; N: record e; B: wait e; B: read x                          | RAW!
TS-11   | A: write x; A: record e; B: wait e; B: read x                          |
TS-12   | A: write x; B: wait e; B: read x                                       | RAW!
TS-13   | A: write x; B: wait e; A: record e; B: read x                          | RAW!
TS-13   | B: wait e; A: write x; A: record e; B: read x                          | RAW
TS-14   | A: write x; A: record e; B: wait e; C: record e; B: read x             |
TS-14   | A: record e; B: wait e; A: write x; A: record e; B: read x             | RAW
TM-18   | A: copy h x; A: record e; B: wait e; B: read x; host: sync e; host: write h; A: copy h x | WAR
TS-15   | A: write x; A: record e; C: record e; B: wait e; B: read x             | RAW!
TS-15   | C: write y; A: write x; A: record e; C: record e; B: wait e; B: read y |
TS-16   | A: copy x h; A: record e; host: query e; host: read h                  |
TS-16   | A: copy x h; A: record e; host: read h                                 | host-reads
TS-16   | A: write x; A: record e; host: query e; B: read x                      |
TS-16   | A: record e; A: copy x h; host: query e; host: read h                  | host-reads!
TS-17   | A: copy x h; host: query e; host: read h                               | host-reads!
TS-17   | A: copy x h; host: sync e; host: read h                                | host-reads!
TS-18   | A: copy x h; A: record e; host: sync e; host: read h                   |
TS-18   | A: write x; A: record e; host: sync e; B: read x                       |
TS-18b  | A: copy x h; B: record e; host: sync e; host: read h                   | host-reads!
TS-18b  | A: write x; A: record e; A: write x; host: sync e; B: read x           | RAW!
TS-19   | A: copy x h; host: sync A; host: read h                                |
TS-19   | A: write x; host: sync A; B: read x                                    |
TS-19b  | A: copy x h; host: sync B; host: read h                                | host-reads!
TS-19c  | A: copy x h; host: sync N; host: read h                                | host-reads!
TS-19c  | A: write x; host: sync N; B: read x                                    | RAW!
TS-20   | A: copy x h; host: query A; host: read h                               |
TS-20   | A: copy x h; host: query B; host: read h                               | host-reads!
TS-21   | A: copy x h; B: copy y h2; host: sync device; host: read h h2          |
TS-21   | A: write x; host: sync device; N: read x; B: read x                    |
TS-21b  | host: sync device; A: copy x h; host: read h                           | host-reads
TS-22   | A: write x; N: read x                                                  | RAW
TS-22b  | A: write x; N: wait_stream A; N: read x                                |
TS-24   | A: write x; A: read x; N: read x                                       | RAW
TS-25   | A: write x; A: read x                                                  |
TS-27   | A: write x; A: add y x; A: copy y z                                    |
TS-28   | P: write x; N: read x                                                  |
TS-28   | N: write x; P: read x                                                  |
TS-28   | A: write x; N: read x                                                  | RAW
TS-28b  | P: write x; N: write z; Q: read x                                      |
TS-28c  | P: write x; Q: read x                                                  | RAW
TS-28d  | A: write x; N: write z; B: read x                                      | RAW
TS-28d  | A: write x; N: write z; P: read x                                      | RAW
TS-28e  | P: copy x h; host: sync N; host: read h                                |
TS-28e  | A: copy x h; host: sync N; host: read h                                | host-reads!
TG-06   | A: copy x h; host: sync device1; host: read h                          | host-reads!
TG-06   | A1: copy x h; host: sync device1; host: read h                         |
TG-01   | A1: write x; B: read x                                                 | RAW
TG-02   | N: write x; N1: read x                                                 | RAW
TG-02   | P: write x; N1: write z; P1: read x                                    | RAW
TG-06   | A: write x; host: sync device1; B: read x                              | RAW!
TS-15   | A: write x; A: record e; C: write y; C: record e; B: wait e; B: read x | RAW!
TS-11   | N: write y; A: write x; N: record e; B: wait e; B: add y x             | RAW
TS-11   | N: write y; A: write x; N: record e; B: wait e; B: read y; B: read x   | RAW
TS-11   | N: write y; host: sync N; A: write x; N: record e; B: wait e; B: copy x y | RAW!
TS-11   | C: write y; C: record e; B: wait e; B: write z; A: wait e; A: read z   | RAW!
TG-07   | A: write x; A: record e; A1: wait e; A1: read x                        |
TG-07   | A: record e; A: write x; A1: wait e; A1: read x                        | RAW!
# -- CuPy streams
CS-02   | N: write x; P: read x                                                  |
CS-03   | P: write x; N: read x; P: write x                                      |
CS-04   | N: write x; A: read x                                                  | RAW
CS-05   | A: write x; N: read x                                                  | RAW
CS-06   | P: write x; Q: read x                                                  | RAW
CS-06b  | P: write x; A: read x                                                  | RAW
CS-07   | P: write x; N: write z; Q: read x                                      |
CS-07   | P: write x; Q: write y; N: write z; Q: read x; P: read y               |
CS-07   | P: write x; N: write z; P: write x; Q: read x                          | RAW
CS-09   | P: write x; N: record e; Q: read x                                     |
CS-09   | P: write x; N: wait e; Q: read x                                       |
CS-09   | A: write x; N: wait e; Q: read x                                       | RAW
CS-07b  | A: write x; N: write z; Q: read x                                      | RAW
CS-08   | T: write x; N: read x                                                  |
CS-08b  | N: write x; T: read x                                                  |
CS-08c  | T: write x; P: read x                                                  | RAW
CS-08d  | T: write x; U: read x                                                  | RAW
CS-08d  | T: write x; N: read z; U: read x                                       |
CS-09   | P: write x; N: record e; A: wait e; A: read x                          |
CS-09   | P: copy x h; N: record e; host: sync e; host: read h                   |
CS-09b  | A: write x; N: record e; B: wait e; B: read x                          | RAW!
CS-09c  | P: copy x h; host: sync N; host: read h                                |
CS-09d  | P: copy x h; host: query N; host: read h                               |
CS-10   | A: write x; A: record e; B: wait e; B: read x                          |
CS-10   | A: write x; N: write y; N: record e; B: wait e; B: read y; B: read x   | RAW
CS-11   | A: write x; A: record e; B: wait e; B: read x                          |
CS-11b  | A: write x; B: wait e; B: read x                                       | RAW!
CS-12   | P: write x; Q: read x                                                  | RAW
CS-23   | A: copy x h; A: read h                                                 |
CS-23b  | A: copy x h; B: read h                                                 | RAW
CS-24   | A: copy x h; A: record e; host: query e; host: read h                  |
CS-24b  | A: copy x h; host: query A; host: read h                               |
CS-25   | A: copy x h; P: copy y h2; host: sync device; host: read h h2          |
CS-28   | A: write x; A: read x                                                  |
CS-28   | N: alloc x; A: write x; N: read x                                      | RAW
# -- copies
TM-01   | A: copy h x; host: write h                                             | host-writes
TM-01   | A: copy h x; host: sync A; host: write h                               |
TM-01   | A: copy h x; host: read h                                              |
TM-01b  | A: copy h x; host: write h[0:8]                                        | host-writes
TM-01b  | A: copy h[8:16] x; host: write h[0:8]                                  |
TM-02   | A: copy h x; host: sync A; host: write h; B: read x                    |
TM-02   | B: write x; A: copy h x; host: sync A; host: write h                   | WAW
TM-03   | A: copy hsnapshot x; host: write h                                     |
TM-03   | A: copy hsnapshot x; B: read x                                         | RAW
TM-04   | A: copy h x; host: sync A; B: read x                                   |
TM-05   | A: copy x h; host: read h                                              | host-reads
TM-05   | A: copy x h; host: sync A; host: read h                                |
TM-06   | A: copy x h; host: read h[0:4]                                         | host-reads
TM-06   | A: copy x h; A: record e; host: sync e; host: read h[0:4]              |
TM-07   | A: copy x h; host: sync A; host: read h                                |
TM-08   | A: copy x h; host: sync A; host: read h; A: write x                    |
TM-09   | A: write x; B: copy x h; host: sync B; host: read h                    | RAW
TM-09b  | A: write x; N: copy x h; host: sync N; host: read h                    | RAW
TM-09c  | A: write x; N: wait_stream A; N: copy x h; host: sync N; host: read h  |
TM-10   | A: write x; A: read x; host: sync A; B: read x                         |
TM-10   | A: write x; B: read z; host: sync B; B: read x                         | RAW
TM-11   | A: write x; A: add y x; B: read y                                      | RAW
TM-11   | A: copy x y; B: wait e; B: read y                                      | RAW!
TM-14   | host: alloc h; A: copy h x; free h; host: alloc h2=h; host: write h2   | reuse
TM-16   | A: copy hsnapshot x; host: write h; A: read x                          |
TM-18   | A: copy h x; A: record e; host: sync e; host: write h; A: copy h y     |
TM-18   | A: copy h x; host: write h; A: copy h y                                | host-writes
TM-18   | A: copy h x; A: record e; A: copy h2 y; host: sync e; host: write h h2 | host-writes!
TG-03   | B1: write x; N: wait_stream N1; N: copy y x                            | WAW!
TG-04   | N1: write x; N: wait_stream N1; N: copy y x; N1: wait_stream N; N1: read x |
TG-05   | N: copy y x; N1: read x                                                | RAW
CS-13   | A: copy x h; host: sync A; host: read h                                |
CS-13b  | P: write x; N: copy x h; host: sync N; host: read h                    |
CS-13c  | A: write x; N: copy x h; host: sync N; host: read h                    | RAW
CS-14   | A: copy x h; host: read h                                              | host-reads
CS-14   | A: copy x h; host: sync A; host: read h                                |
CS-17   | A: copy h x; host: write h                                             | host-writes
CS-17b  | A: copy h x; host: sync A; host: write h                               |
CS-18b  | A: copy h x; host: write h                                             | host-writes
CS-19   | host: alloc h; A: copy h x; free h; host: alloc h2=h; host: write h2   | reuse
CS-19   | host: alloc h; A: copy h x; host: sync A; free h; host: alloc h2=h; host: write h2 |
CS-19   | host: alloc h; A: copy h x; free h                                     | latent reuse
CS-26   | A: copy x h; host: sync A; host: read h; A: write x; B: read x         | RAW
CS-27   | P: write x; N: copy x h; host: sync N; host: read h                    |
CS-27b  | A: write x; N: copy x h; host: sync N; host: read h                    | RAW
# -- autograd, said as streams
TA-01   | A: write x; A: add g x; N: write l; A: wait_stream N; A: add g l       |
TA-02   | A: write g; N: wait_stream A; N: read g                                |
TA-02   | A: write g; B: wait_stream A; N: read g                                | RAW
TA-03   | A: write g; N: read g                                                  | RAW
TA-03b  | A: write g; N: wait_stream A; N: read g                                |
TA-03c  | A: write g; N: wait_stream A; N: read g; B: read g                     | RAW
TA-04   | N: write g; A: read g                                                  | RAW
TA-04   | N: write g; A: wait_stream N; A: read g                                |
TA-05   | A: write g; A: read g                                                  |
TA-06   | A: write g; A: read g; N: read g                                       | RAW
TA-08   | A: write g; A: copy g h; host: read h                                  | host-reads
TA-12   | A: add g l; B: add g k                                                 | RAW
TA-12b  | A: add g l; B: wait_stream A; B: add g k                               |
TA-15   | A: write x; B: wait_stream A; B: read x; A: write x                    | WAR
# -- allocators
TL-01   | A: talloc x; A: write x; free x; A: talloc y=x; A: write y             |
TL-02   | A: talloc x; A: write x; host: sync A; B: read x; free x; A: talloc y=x; A: write y | reuse
TL-02   | A: talloc x; A: write x; host: sync A; B: read x; free x               | latent reuse
TL-02   | A: talloc x; B: read x; free x; host: sync B                           |
TL-03   | A: talloc x; B: read x; x recorded B; free x; A: talloc y=x; A: write y |
TL-03   | A: talloc x; x recorded B; B: read x; free x; A: talloc y=x; A: write y |
TL-04   | A: talloc x; x recorded A; B: read x; free x; A: talloc y=x; A: write y | reuse
TL-05   | A: talloc x; x recorded C; B: read x; free x; A: talloc y=x; A: write y | reuse
TL-06   | A: talloc x; A: write x; x recorded B; B: read x                       | RAW
TL-07   | A: talloc x; B: read x; A: wait_stream B; free x; A: talloc y=x; A: write y |
TL-07   | A: talloc x; B: read x; free x; A: talloc y=x; A: wait_stream B; A: write y |
TL-07   | A: talloc x; B: read x; free x; B: wait_stream A; A: talloc y=x; A: write y | reuse
TL-08   | B: talloc x; A: read x; free x; B: talloc y=x; B: write y              | reuse
TL-09   | A: talloc x; B: read x; free x; release x; A: new y=x; A: write y      |
TL-11   | A: talloc x; B: write x; free x; A: talloc y=x; A: write y             | reuse
TL-12   | A: talloc x; B: read x; free x; A: talloc x; A: write x; B: read x     | reuse RAW
CS-20   | N: alloc x; A: read x; free x; N: alloc y=x; N: write y                | reuse
CS-20   | N: alloc x; A: read x; host: sync A; free x; N: alloc y=x; N: write y  |
CS-20b  | A: alloc x; N: read x; free x; A: alloc y=x; A: write y                | reuse
CS-20c  | N: alloc x; P: read x; free x; N: alloc y=x; N: write y                |
CS-20d  | P: alloc x; Q: read x; free x; P: alloc y=x; P: write y                | reuse
CS-20e  | N: alloc x; A: read x; A: record e; N: wait e; free x; N: alloc y=x; N: write y |
CS-20e  | N: alloc x; A: record e; A: read x; N: wait e; free x; N: alloc y=x; N: write y | reuse
CS-20   | N: alloc x; A: read x; free x                                         | latent reuse
CS-20c  | N: alloc x; P: read x; free x                                          |
CS-20   | N: alloc x; A: read x; x recorded A; free x; N: alloc y=x; N: write y  | reuse
CS-21   | N: alloc x; N: write x; free x; N: alloc y=x; N: write y               |
CS-22   | N: alloc x; A: write x; free x; N: alloc y=x; N: write y               | reuse
CS-29   | A: alloc x; A: write x; free x; destroy A; A: alloc y=x; A: write y    | reuse
CS-29   | A: alloc x; A: write x; free x; host: sync A; destroy A; A: alloc y=x; A: write y |
# -- graphs
GC-02   | A: begin; A: write x; A: end g; B: read x                              |
GC-08   | A: begin; A: write x; A: end g; A: launch g; A: read x                 |
GC-08   | B: write x; A: begin; A: read x; A: end g; B: launch g; B: write x     |
GC-09   | A: begin; A: write x; A: end g; A: launch g; B: read x                 | RAW
GC-10   | A: begin; A: write x; A: end g; A: launch g; B: wait_stream A; B: read x |
GC-11   | A: begin; A: read x; A: end g; A: launch g; B: write x                 | WAR
GC-11   | A: begin; A: read x; A: end g; A: launch g; B: wait_stream A; B: write x |
GC-12   | A: begin; A: copy x h; A: end g; A: launch g; host: read h             | host-reads
GC-12   | A: begin; A: copy x h; A: end g; A: launch g; host: sync A; host: read h |
GC-13   | A: begin; A: write x; A: end g; A: launch g; B: launch g               |
GC-13   | A: begin; A: write x; A: end g; B: begin; B: write x; B: end k; A: launch g; B: launch k | WAW
GC-14   | A: begin; A: write x; B: wait_stream A; B: read x; A: wait_stream B; A: write x; A: end g |
GC-14   | A: begin; A: write x; B: wait_stream A; B: write y; A: read y; A: wait_stream B; A: end g | RAW
GC-19   | A: begin; A: copy h x; A: end g; A: launch g; host: write h            | host-writes
GC-20   | A: begin; A: write x; A: record e; A: end g; A: launch g; B: wait e; B: read x | RAW
GC-24   | A: begin; B: wait_stream A; A: wait_stream B; B: end g                 | unjoined-capture-stream
GM-stream_sync | A: begin; host: sync A; A: end g                                | sync-in-capture
GM-stream_query | A: begin; host: query A; A: end g                              | sync-in-capture
GM-dev_sync | A: begin; host: sync device; A: end g                              | sync-in-capture
GM-ev_sync_cap | A: begin; A: record e; host: sync e; A: end g                   | sync-in-capture
GM-ev_sync_pre | B: record e; A: begin global; host: sync e; A: end g            | sync-in-capture
GM-ev_sync_pre | B: record e; A: begin relaxed; host: sync e; A: end g           |
GM-side_stream_sync | A: begin global; host: sync B; A: end g                    | sync-in-capture
GM-side_stream_sync | A: begin relaxed; host: sync B; A: end g                   |
GM-wait_outside | A: begin; B: record e; A: wait e; A: end g                     | unjoined-capture-stream
GM-wait_precapture | B: record e; A: begin; A: wait e; A: end g                  | unjoined-capture-stream
GM-fork_only | A: begin; A: record e; B: wait e; B: write x; A: end g            | unjoined-capture-stream
GM-fork_join | A: begin; A: record e; B: wait e; B: write x; A: wait_stream B; A: end g |
GM-side_launch | A: begin; B: write x; A: end g; C: read x                       | RAW
GM-default_waits_cap | A: begin; A: record e; N: wait e; A: end g                | unjoined-capture-stream
GP-01   | N: begin                                                               | capture-on-default-stream
GP-02   | P: begin; N: write x; P: end g                                         | sync-in-capture
GP-03   | A: begin; N: write x; A: end g; N: read x                              |
GP-13   | A: begin; A: alloc x; A: write x; free x; A: end g; A: alloc y=x; A: launch g | captured
GP-13   | A: begin; A: alloc x; A: write x; free x; A: end g; A: launch g        |
GP-13   | A: begin; A: alloc x; A: write x; A: end g; A: launch g; A: read x     |
GP-14   | A: begin; A: write x; A: end g; B: launch g; A: read x                 | RAW
GC-06   | A: alloc x; A: begin; A: read x; A: end g; free x; A: alloc y=x; A: launch g | rebound-static-input
# -- distributed and interop, said as streams
TD-01   | A: write x; C: wait_stream A; C: add x x; A: read x                    | RAW
TD-02   | A: write x; C: wait_stream A; C: add x x; A: wait_stream C; A: read x  |
TD-03   | A: write x; C: wait_stream A; C: add x x; A: wait_stream C; B: read x  | RAW
TD-05   | A: add x x; B: read x                                                  | RAW
TD-08   | C: copy x h; A: wait_stream C; host: read h                            | host-reads
CI-01   | N: write x; N: read x                                                  |
CI-02   | A: write x; N: read x                                                  | RAW
CI-02b  | N: write x; P: read x                                                  |
CI-02c  | A: write x; P: read x                                                  | RAW
CI-03   | A: write x; B: wait_stream A; B: read x                                |
CI-03c  | A: write x; N: record e; B: wait e; B: read x                          | RAW!
CI-08   | A: write x; host: sync A; B: read x                                    |
CI-12   | A: write x; B: wait_stream A; A: write x; B: read x                    | RAW
CI-13b  | N: alloc x; A: read x; x recorded A; free x; N: alloc y=x; N: write y  | reuse
CI-14   | A: talloc x; P: read x; free x; A: talloc y=x; A: write y              | reuse
CI-14b  | A: talloc x; P: read x; x recorded P; free x; A: talloc y=x; A: write y |
CI-15   | P: write x; N: read x                                                  |
CI-15b  | P: write x; A: read x                                                  | RAW
"""

ROWS = [
    tuple(field.strip() for field in line.split("|"))
    for line in TABLE.splitlines()
    if line.strip() and not line.startswith("#")
]


@pytest.mark.parametrize(
    ("row", "program", "expected"), ROWS, ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)]
)
def test_row(row: str, program: str, expected: str) -> None:
    found = " ".join(check(program))
    assert found == expected


def test_table_is_large_enough() -> None:
    assert len({row for row, _, _ in ROWS}) >= 120
    unordered = {row for row, _, expected in ROWS if re.search(r"RAW|WAR|WAW|host-|reuse", expected)}
    assert len(unordered) >= 40
