"""Renders what deploy/kubernetes/ ships and checks each object against the schemas of Kubernetes, with every unknown field
refused; reads the pods as their guards would."""
import unittest

from manifests import OVERLAYS, complaint, misspelt, rendered, skip_without_kustomize

# Their kinds come with operators, whose schemas are not Kubernetes'.
OF_OPERATORS = {"Certificate", "PodMonitor"}


def pods(overlay):
    """Names and specs of the pods that the overlay's controllers make."""
    return {thing["metadata"]["name"]: thing["spec"]["template"]["spec"] for thing in rendered(overlay) if thing["kind"] == "StatefulSet"}


class Manifests(unittest.TestCase):
    def test_every_object_is_good(self):
        checked = 0
        for overlay in OVERLAYS:
            for thing in rendered(overlay):
                self.assertIn("name", thing["metadata"])
                if thing["kind"] not in OF_OPERATORS:
                    self.assertEqual(complaint(thing), "", f"{overlay}: {thing['kind']} {thing['metadata']['name']}")
                    checked += 1
        print(f"figure: {checked} objects of {len(OVERLAYS)} directories are good")
        self.assertGreater(checked, 50)

    def test_every_misspelt_field_is_found(self):
        unseen, tried = [], 0
        for thing in rendered("rdma"):
            for path, wrong in misspelt(thing):
                if path[0] in ("kind", "apiVersion"):
                    continue
                tried += 1
                if not complaint(wrong):
                    unseen.append(".".join(map(str, path)))
        print(f"figure: {tried} misspelt fields are found")
        self.assertGreater(tried, 200)
        self.assertEqual(unseen, [])

    def test_pods_have_no_rights_that_they_do_not_need(self):
        for overlay in set(OVERLAYS) - {"pod-monitor"}:
            for name, pod in pods(overlay).items():
                self.assertEqual(pod["automountServiceAccountToken"], False, (overlay, name))
                self.assertEqual((pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]),
                                 (True, {"type": "RuntimeDefault"}), (overlay, name))
                for container in pod["containers"] + pod.get("initContainers", []):
                    rights = container["securityContext"]
                    self.assertEqual((rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"], rights["capabilities"]["drop"]),
                                     (False, True, ["ALL"]), (overlay, name))
                    self.assertEqual(rights["capabilities"].get("add", []), ["IPC_LOCK"] if "rdma" == overlay and "worker" in name else [])
                self.assertFalse([volume for volume in pod.get("volumes", []) if "hostPath" in volume])

    def test_a_drain_has_the_time_that_it_needs(self):
        for overlay in set(OVERLAYS) - {"pod-monitor"}:
            pod = pods(overlay)["trainyard-worker"]
            self.assertGreater(pod["terminationGracePeriodSeconds"], 120)  # The worker's --drain-timeout.
            self.assertNotIn("livenessProbe", pod["containers"][0])

    def test_what_overlays_add_is_there(self):
        worker = pods("gpu")["trainyard-worker"]["containers"][0]
        self.assertEqual(worker["resources"]["limits"], {"nvidia.com/gpu": 8})
        self.assertIn("--devices=cuda", worker["args"])
        self.assertIn("rdma/hca_shared_devices_a", pods("rdma")["trainyard-worker"]["containers"][0]["resources"]["limits"])
        [join] = [volume for volume in pods("service-account")["trainyard-worker"]["volumes"] if volume["name"] == "join"]
        self.assertEqual(join["projected"]["sources"][0]["serviceAccountToken"]["audience"], "trainyard")
        self.assertNotIn("secret", join)
        self.assertIn("--issuers=/etc/trainyard/issuers.yaml", pods("service-account")["trainyard-controller"]["containers"][0]["args"])
        self.assertIn("--tls-key=/run/secrets/tls/tls.key", pods("cert-manager")["trainyard-controller"]["containers"][0]["args"])


if __name__ == "__main__":
    skip_without_kustomize()
    unittest.main(verbosity=2)
