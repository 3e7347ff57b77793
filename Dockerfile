# docker build -t streamsafe . && docker run --rm -v "$PWD:/src" streamsafe check
FROM python:3.12-slim
# --diff-base asks git which lines have changed
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . /tmp/streamsafe
RUN pip install --no-cache-dir "/tmp/streamsafe[lsp]" && rm -r /tmp/streamsafe
WORKDIR /src
ENTRYPOINT ["streamsafe"]
CMD ["--help"]
