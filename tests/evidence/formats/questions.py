"""The competency questions of the Workflow Run RO-Crate community as SPARQL queries over a crate.

Source of the questions: ResearchObject/workflow-run-crate, docs/requirements.md, CQ1 to CQ11. The queries are ours.
"""

from __future__ import annotations

_PREFIXES = """
PREFIX s: <http://schema.org/>
PREFIX bs: <https://bioschemas.org/>
PREFIX cw: <https://bioschemas.org/ComputationalWorkflow#>
PREFIX dct: <http://purl.org/dc/terms/>
PREFIX cm: <https://codemeta.github.io/terms/>
PREFIX wr: <https://w3id.org/ro/terms/workflow-run#>
"""
_STEP = """
    ?control a s:ControlAction ; s:instrument ?step ; s:object ?run .
    ?step s:name ?stage .
    ?run a s:CreateAction ; s:instrument ?tool .
"""
_WHOLE = """
    ?root s:mainEntity ?workflow ; s:mentions ?run .
    ?workflow a bs:ComputationalWorkflow .
    ?run a s:CreateAction ; s:instrument ?workflow .
"""
QUESTIONS = {
    "CQ1 container images": f"""SELECT ?stage ?registry ?name ?tag ?sha256 {{ {_STEP}
        ?run wr:containerImage ?image .
        ?image a wr:ContainerImage ; s:additionalType wr:DockerImage ; wr:registry ?registry ; s:name ?name .
        OPTIONAL {{ ?image wr:tag ?tag }} OPTIONAL {{ ?image wr:sha256 ?sha256 }} }}""",
    "CQ2 resources": f"""SELECT ?stage ?what ?unit ?value {{ {_STEP}
        ?run wr:resourceUsage ?usage .
        ?usage s:name ?what ; s:propertyID ?id ; s:unitCode ?unit ; s:value ?value }}""",
    "CQ3 configuration files": f"""SELECT ?stage ?name {{ {_STEP}
        ?run s:object ?file . ?file a s:MediaObject ; s:additionalType "configuration" ; s:name ?name }}""",
    "CQ4 environment files": f"""SELECT ?stage ?name ?format {{ {_STEP}
        ?step cm:buildInstructions ?file .
        ?file a s:MediaObject ; s:name ?name ; s:encodingFormat ?format ; dct:conformsTo ?form }}""",
    "CQ5 time of a component": f"SELECT ?stage ?start ?end {{ {_STEP} ?run s:startTime ?start ; s:endTime ?end }}",
    "CQ6 time of the workflow": f"SELECT ?start ?end {{ {_WHOLE} ?run s:startTime ?start ; s:endTime ?end }}",
    "CQ7 success": f"SELECT ?stage ?status {{ {_STEP} ?run s:actionStatus ?status }}",
    "CQ8 inputs and outputs": f"""SELECT ?side ?name {{ {_WHOLE}
        {{ ?run s:object ?thing . BIND("in" AS ?side) }} UNION {{ ?run s:result ?thing . BIND("out" AS ?side) }}
        ?thing s:name ?name }}""",
    "CQ9 versions of components": f"SELECT ?stage ?version {{ {_STEP} ?tool s:softwareVersion ?version }}",
    "CQ10 wrappers": f"""SELECT ?stage ?wrapper ?name ?version {{ {_STEP}
        ?tool s:name ?wrapper ; s:mainEntity ?wrapped ; s:softwareRequirements ?wrapped .
        ?wrapped a s:SoftwareApplication ; s:name ?name ; s:version ?version }}""",
    "CQ11 parameters of the workflow in its tools": f"""SELECT ?key ?value ?stage {{ {_WHOLE}
        ?workflow cw:input ?parameter ; s:step ?step .
        ?parameter a bs:FormalParameter ; s:name ?key .
        ?run s:object ?given . ?given s:exampleOfWork ?parameter ; s:value ?value .
        ?step s:name ?stage ; s:workExample ?tool ; wr:connection ?link .
        ?link a wr:ParameterConnection ; wr:sourceParameter ?parameter ; wr:targetParameter ?target .
        ?tool cw:input ?target . ?given s:exampleOfWork ?target }}""",
}


def query(question: str) -> str:
    """The whole query."""
    return _PREFIXES + QUESTIONS[question]
