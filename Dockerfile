# docker build -t streamsafe . && docker run --rm -v "$PWD:/src" streamsafe check
FROM python:3.12-slim
COPY . /tmp/streamsafe
RUN pip install --no-cache-dir "/tmp/streamsafe[lsp]" && rm -r /tmp/streamsafe
WORKDIR /src
ENTRYPOINT ["streamsafe"]
CMD ["--help"]
