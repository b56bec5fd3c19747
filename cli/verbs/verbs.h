// The table of verbs. A new verb needs a file here, a declaration below, and a line in verbs.cc.

#pragma once

#include <vector>

#include "cli/verb.h"

namespace trainyard::cli {

const std::vector<Verb>& Verbs();  // In the order of the help.

Verb AuditVerb();
Verb CancelVerb();
Verb CheckpointDigestVerb();
Verb CheckpointInspectVerb();
Verb CheckpointListVerb();
Verb CheckpointVerifyVerb();
Verb CompletionVerb();
Verb EvaluateVerb();
Verb EventsVerb();
Verb ExportStepsVerb();
Verb ExportVerb();
Verb FlopsVerb();
Verb GenerateVerb();
Verb GetVerb();
Verb HealthVerb();
Verb ImportVerb();
Verb ListVerb();
Verb LoginVerb();
Verb LogoutVerb();
Verb LogsVerb();
Verb ModelsVerb();
Verb RecipesVerb();
Verb StepsVerb();
Verb SubmitVerb();
Verb TokenCreateVerb();
Verb TokenListVerb();
Verb TokenRevokeVerb();
Verb UpVerb();
Verb WatchVerb();
Verb WhoAmIVerb();
Verb WorkersVerb();

}  // namespace trainyard::cli
