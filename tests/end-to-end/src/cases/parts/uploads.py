# Keeps what is PUT: uploads.py ADDRESS DIRECTORY
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        path = os.path.join(sys.argv[2], os.path.basename(self.path))
        with open(path, "wb") as file:
            while left:
                data = self.rfile.read(min(left, 65536))
                if not data:
                    sys.exit("an upload ended early")
                file.write(data)
                left -= len(data)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer((sys.argv[1], 8000), Handler).serve_forever()
