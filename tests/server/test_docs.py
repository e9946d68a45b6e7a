"""server/docs.py: the page loads its files from the service and from nobody else."""

import re


def test_the_documentation_is_loaded_from_the_service_alone(client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
    files = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text)
    assert len(files) == 4
    for path in files:
        assert "//" not in path
        found = client.get(f"/{path}")
        assert found.status_code == 200
        assert len(found.content) > 50
    assert client.get("/docs/start.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/docs/other.js").status_code == 404
