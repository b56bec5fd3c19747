"""The manifests of deploy/kubernetes/, rendered, and what Kubernetes' schemas say of them. The schemas come with the package
kubernetes-validate, whose own strict mode lets unknown fields of probes pass."""
import copy
import functools
import json
import re
import sys

import jsonschema
import referencing
import yaml
from kubernetes_validate import utils

from package import SOURCE, run

SHIPPED = SOURCE / "deploy/kubernetes"
OVERLAYS = sorted(path.parent.name for path in SHIPPED.glob("*/kustomization.yaml"))
VERSION = "1.32"
SCHEMAS = f"kubernetes-json-schema/v{next(v for v in utils.all_versions() if v.startswith(VERSION))}-local-strict"


SKIPPED = 77


def skip_without_kustomize():
    """Ends the test, as one that was skipped, where kubectl is older than the manifests: Debian 12's is of 2020."""
    version = json.loads(run("kubectl", "version", "--client", "--output=json"))["clientVersion"]
    if (int(version["major"]), int(re.match(r"\d+", version["minor"])[0])) < (1, 21):
        print(f"skipped: wanted kubectl 1.21 or newer to render the overlays, found {version['gitVersion']}")
        sys.exit(SKIPPED)


@functools.cache
def rendered(overlay):
    return list(yaml.safe_load_all(run("kubectl", "kustomize", SHIPPED / overlay)))


def strict(schema):
    """Objects with named fields have no others."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for part in schema.values():
            strict(part)
    elif isinstance(schema, list):
        for part in schema:
            strict(part)
    return schema


@functools.cache
def definitions():
    return referencing.Resource.from_contents(strict(utils.schema_contents(f"{SCHEMAS}/_definitions.json", VERSION)))


@functools.cache
def validator(kind, api):
    group = re.sub(r"^([^./]*)(?:[.][^/]*)?/", r"\1-", api)  # rbac.authorization.k8s.io/v1: rbac-v1
    schema = strict(utils.schema_contents(f"{SCHEMAS}/{kind.lower()}-{group}.json", VERSION))
    registry = referencing.Resource.from_contents(schema) @ (definitions() @ referencing.Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def complaint(thing):
    """Empty where the object is good."""
    error = next(validator(thing["kind"], thing["apiVersion"]).iter_errors(thing), None)
    return f"{'.'.join(map(str, error.absolute_path))}: {error.message}" if error else ""


# Below these, names are the user's.
FREE = {"labels", "annotations", "matchLabels", "data", "requests", "limits"}


def misspelt(thing, path=()):
    """Copies of an object, each with one field's last letter doubled, with the field's path."""
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ():
        if isinstance(key, str) and "/" not in key:  # Names of labels have one, and are the user's.
            yield (*path, key), {f"{name}{name[-1]}" if name == key else name: part for name, part in thing.items()}
        if key in FREE:
            continue
        for where, part in misspelt(value, (*path, key)):
            copied = copy.copy(thing)
            copied[key] = part
            yield where, copied
